"""Entry: ``python src/partition.py dataset=cifar10 partition=dirichlet_public num_clients=20``. Nothing is trained."""

import sys

from fedsaf.partition import main

if __name__ == "__main__":
    sys.exit(main())
