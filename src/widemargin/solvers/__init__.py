"""One algorithm per module: arrays in, a frozen result out."""
