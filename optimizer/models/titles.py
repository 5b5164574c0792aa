"""Store titles and names of things without characters that would show them, or what stands beside them, reordered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from optimizer.text.hostile_text import without_reordering

if TYPE_CHECKING:
    _Text = models.CharField[str, str]
else:
    _Text = models.CharField


class TitleField(_Text):
    """Store one line that is shown in lists, mails and messages, whoever wrote it.

    Every way to a row leads through the field, so no form, operation of the API or import has to think of it. For the
    database, and so for migrations, it is a CharField.
    """

    def deconstruct(self) -> Any:
        """Return the definition of a CharField."""
        name, _, arguments, options = super().deconstruct()
        return name, "django.db.models.CharField", arguments, options

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Clean the instance's own value too, which is shown after it was saved."""
        value = super().pre_save(model_instance, add)
        if isinstance(value, str):
            value = without_reordering(value)
            setattr(model_instance, self.attname, value)
        return value

    def get_prep_value(self, value: Any) -> Any:
        """Clean the value of an update."""
        value = super().get_prep_value(value)
        return without_reordering(value) if isinstance(value, str) else value
