"""The figures and tables of Schultheis & Babbar (2022), re-run: `make reproduce-one-vs-all`."""
