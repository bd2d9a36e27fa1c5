"""``python -m secure_fgl``: the same as the command ``secure-fgl``."""

from secure_fgl.cli import main

if __name__ == "__main__":
    main()
