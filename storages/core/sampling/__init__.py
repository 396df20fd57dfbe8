"""Which rows a batch is made of: uniform, prioritized, recent, or whole episodes."""
