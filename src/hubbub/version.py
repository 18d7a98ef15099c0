"""The version of this package, for everybody who writes it down."""

VERSION = "0.1.0"
