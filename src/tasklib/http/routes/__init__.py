"""The routes, by noun."""

from starlette.convertors import StringConvertor, register_url_convertor


class NameConvertor(StringConvertor):
    """A name in a path, which may hold slashes: a server decodes `%2F` before the path is routed.

    It ends in something else, so that a path with a slash too many is redirected as any other.
    """

    regex = "(?:.*[^/])"


# The framework knows one list of them for all applications of a process.
register_url_convertor("tasklib_name", NameConvertor())
