"""Structure of the label set: taxonomies and label encoding. Nothing here knows of features or weights."""
