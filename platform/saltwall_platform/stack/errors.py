"""What stops the stack from running; the message says what to do about it."""


class StackError(Exception):
    """A step of `saltwall up` or `saltwall engine` cannot run."""


class FlagError(StackError):
    """An engine flag that Saltwall sets itself or must refuse."""
