"""One algorithm a file: arrays in, a frozen result out."""
