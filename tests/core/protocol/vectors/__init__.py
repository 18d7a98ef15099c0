"""Golden vectors and what makes them."""
