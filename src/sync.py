"""Entry: ``python src/sync.py runs``. Uploads runs that W&B mirrored offline; what has arrived is not sent again."""

import sys

from fedsaf.tracking.upload import main

if __name__ == "__main__":
    sys.exit(main())
