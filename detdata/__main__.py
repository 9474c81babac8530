"""`python -m detdata` is the command `detdata`."""

from detdata.cli import main

if __name__ == "__main__":
    main(prog_name="detdata")
