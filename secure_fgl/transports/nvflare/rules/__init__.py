"""What every charter keeps to, whoever draws it up: held at `draw_up`, `sign` and `check` alike."""
