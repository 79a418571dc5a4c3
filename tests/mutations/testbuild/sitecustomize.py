"""Python imports this at start when its folder is on PYTHONPATH: the process is a test build.

Every process of the stack inherits the variable, so that no hook is needed in the product.
"""

from mutants import imports

imports.install()
