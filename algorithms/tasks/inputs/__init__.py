"""What tasks learn from: graphs and nodes as tensors, checked once."""
