"""Entry: ``python src/bench.py``. What a federated round costs beside a bare PyTorch loop over the same batches."""

from fedsaf.bench import main

if __name__ == "__main__":
    main()
