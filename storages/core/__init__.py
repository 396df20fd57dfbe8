"""Parts of storages; independent of algorithms."""
