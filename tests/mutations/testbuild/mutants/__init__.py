"""Single defects that the auditor must catch, and how a test build has them.

Standard library only at import time: this is loaded in every process of the stack, before anything
else.
"""
