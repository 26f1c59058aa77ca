"""Make the pictures of the README anew: python tools/make_pictures.py"""

from pathlib import Path

from attnviz.cli.app import app

ORANGE = "Orange is my favorite fruit"
DOCS = Path(__file__).parent.parent / "docs"
PICTURES = {"heads.png": [ORANGE], "heads-hide-special.png": [ORANGE, "--hide-special"]}


def main() -> None:
    for name, arguments in PICTURES.items():
        app(["heads", *arguments, "-o", str(DOCS / name)], standalone_mode=False)


if __name__ == "__main__":
    main()
