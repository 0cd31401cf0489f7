"""Run the command line with ``python -m specdeploy``."""

from specdeploy.cli import main

if __name__ == "__main__":
    main()
