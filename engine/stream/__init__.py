"""The stream of records an engine leaves, how they are made, and everything that reads them."""
