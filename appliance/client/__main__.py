"""`python -m rocketbox run app.consumers`: see `running`."""

import sys

from .running import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
