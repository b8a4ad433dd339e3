"""Entry: ``python src/train.py alignment=rcsa partition=dirichlet_0.5 -m``. Composes, checks, hands over."""

from fedsaf.train import main

if __name__ == "__main__":
    main()
