def near_copy_groups(): pass
