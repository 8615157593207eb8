"""Options that several commands take together: a Struct is their one declaration, and what a command gets."""

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import msgspec
import typer


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as typer reads it: a parameter whose type is a `msgspec.Struct` stands for as many options as
    that has fields, each an `Annotated[..., typer.Option(...)]`. Their defaults are the fields', or those of
    the instance that is the parameter's default."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[msgspec.Struct]] = {}
    options: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            groups[parameter.name] = hint
            options.extend(_options(hint, parameter.default))
        else:
            options.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    def flat(**given: Any) -> None:
        own = {
            name: group(**{field: given.pop(field) for field in group.__struct_fields__})
            for name, group in groups.items()
        }
        command(**own, **given)

    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__annotations__ = {option.name: option.annotation for option in options}
    flat.__signature__ = Signature(options)  # pyright: ignore[reportFunctionMemberAccess]
    return flat


def _options(group: type[msgspec.Struct], instance: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in msgspec.structs.fields(group):
        default = field.default if instance is Parameter.empty else getattr(instance, field.name)
        yield Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if default is msgspec.NODEFAULT else default,
            annotation=hints[field.name],
        )


def given_options(ctx: typer.Context) -> set[str]:
    """The names of the parameters that the command line gives, which those left at their default are not."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
