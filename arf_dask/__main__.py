"""`python -m arf_dask` is the command line."""

from arf_dask.cli.main import cli

if __name__ == "__main__":
    cli(prog_name="arf-dask")
