"""Quality of rankings, label sets, top-k predictions and places in a tree."""
