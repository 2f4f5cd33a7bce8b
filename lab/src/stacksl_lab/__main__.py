"""`python -m stacksl_lab`: the command `stacksl-lab`."""

from stacksl_lab.verbs import main

if __name__ == "__main__":
    main()
