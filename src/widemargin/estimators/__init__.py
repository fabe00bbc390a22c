"""The scikit-learn interface: check input once, choose a solver, keep the result. Families are imported one by one."""
