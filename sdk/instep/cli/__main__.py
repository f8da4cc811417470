"""`python -m instep.cli`: the command line, as the script `instep`."""

from instep.cli import main

if __name__ == "__main__":
    main()
