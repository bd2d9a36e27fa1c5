"""What the models of `algorithms.nn` compute, as torch modules; a plan loads none of them."""
