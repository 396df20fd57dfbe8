"""Base classes and components of the algorithms of this family."""
