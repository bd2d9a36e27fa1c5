"""What a disclosure's folder may hold: a class for each of its files, with the default."""
