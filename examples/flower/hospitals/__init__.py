"""Four hospitals that train together in Flower."""
