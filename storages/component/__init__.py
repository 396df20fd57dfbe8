"""A class and its hyper-parameters: declared once, checked, bound now, called later."""
