"""Small tools for whoever works on Secure-FGL; nothing here is installed."""
