"""The web service: routes, schemas, errors, security, metrics, connections and static pages around an engine."""

__all__: list[str] = []
