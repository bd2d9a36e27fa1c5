"""``python -m secure_fgl.cli``, for where the console script is not on the path."""

from secure_fgl.cli import main

if __name__ == "__main__":
    main()
