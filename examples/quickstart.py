"""Buy a tenth of the labels of the built-in sample, and look at what came out."""

import tempfile
from pathlib import Path

import stacksl


def main(folder: Path) -> None:
    run = stacksl.run(budget=0.1, out=folder / "first-run")
    status = run.status()
    print(f"bought {status['asked']} of {status['budget']} labels in {status['rounds']} rounds")
    for row in run.predict([stacksl.Item("q1", "A lambda is an anonymous function.", ())]):
        print(f"{row['choice']}, with probability {row['probability']:.2f}")
    print(f"the report: {run.report()}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
