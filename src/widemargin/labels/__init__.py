"""Structure of the label set: taxonomies, codes and label encoding. Nothing here knows of features or weights."""
