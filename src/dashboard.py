"""Entry: ``python src/dashboard.py --scale small``. Saves a workspace and a report of the mirrored runs in W&B."""

import sys

from fedsaf.tracking.dashboard import main

if __name__ == "__main__":
    sys.exit(main())
