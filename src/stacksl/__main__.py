"""`python -m stacksl`: the command line."""

from stacksl.cli import main

if __name__ == "__main__":
    main()
