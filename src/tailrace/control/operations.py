"""What the control plane does for its users; the API and the pages call these, and nothing else.

    operations    subscriptions: create, change, pause, resume, cancel, retry, remove
    streams       of one subscription: status, tables, signals, log
    offsets       of one of its streams: show, history, differences, set
    comparisons   of its tables with their targets: jobs, and what is known
    inspection    of a pipeline file: its preconditions, an estimate, a source's tables

A checkpoint is a file that every server reaches, so any server can answer for any subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.config.load import parse_pipelines
from tailrace.config.model import Pipeline
from tailrace.control import sessions, subscriptions, tokens
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.oidc.identity import Person
from tailrace.control.oidc.sign_on import SignOn
from tailrace.control.places import resolved
from tailrace.control.policy import Policy
from tailrace.control.progress import TableReport, tables_of
from tailrace.control.stages import Desired
from tailrace.control.subscriptions import Subscription
from tailrace.control.tokens import Attempts, Token


@dataclass
class Control:
    """The control plane, as a server has it.

    Args:
        database: its database.
        data_dir: the server's data directory.
        policy: what a pipeline file may do.
        sign_on: how people sign in through a provider; None: they do not.
    """

    database: ControlDatabase
    data_dir: Path
    policy: Policy = field(default_factory=Policy)
    sign_on: SignOn | None = None

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.absolute()
        self.attempts = Attempts()

    # ---- users ----

    def authenticate(self, text: str) -> Token | None:
        """Whom a token names, ours or one of the provider; None: nobody, or no longer.

        Raises:
            ControlError: the provider's token is refused.
            TransientControlError: the provider does not answer.
        """
        if self.sign_on is not None and self.sign_on.takes_access_tokens and text.count(".") == 2:
            person = self.sign_on.of_access_token(text)
            return Token(person.name, person.scope, 0, None)
        return self.database.read(lambda connection: tokens.find(connection, text))

    def signed_in(self, text: str) -> Token | None:
        """Whom a browser's cookie names: a token of ours, or a session; None: nobody, or no longer."""
        found = self.database.read(
            lambda connection: sessions.find(connection, text) or tokens.find(connection, text)
        )
        # what was granted by a provider ends with the provider
        return None if found is not None and self.sign_on is None and sessions.is_session(text) else found

    def sign_in(self, person: Person) -> str:
        """What the cookie of somebody who has signed in through the provider is to hold."""
        assert self.sign_on is not None
        with self.database.begin() as connection:
            return sessions.begin(connection, person, self.sign_on.settings.session_hours)

    def sign_out(self, text: str) -> None:
        """End a session; a token stays."""
        if sessions.is_session(text):
            with self.database.begin() as connection:
                sessions.end(connection, text)

    # ---- subscriptions ----

    def get(self, name: str) -> Subscription:
        """A subscription.

        Raises:
            ControlError: there is none of this name.
        """
        return self.database.read(lambda connection: subscriptions.get(connection, name))

    def tables(self, subscription: Subscription) -> Sequence[TableReport]:
        """What its owner has reported of a subscription's tables."""
        return self.database.read(lambda connection: tables_of(connection, subscription.id))

    def create(self, actor: str, name: str, spec: str, *, paused: bool = False) -> tuple[Subscription, bool]:
        """Create a subscription; see `subscriptions.create`.

        Args:
            actor: who asks for it.
            name: its name.
            spec: the pipeline file.
            paused: whether it waits until somebody resumes it.

        Raises:
            ConfigError: the file is wrong, or the server's policy does not allow what it does.
            ControlError: there is another one of this name.
        """
        self.require_allowed(spec, name)
        with self.database.begin() as connection:
            made, is_new = subscriptions.create(connection, actor, name, spec)
            if is_new and paused:
                made = subscriptions.set_desired(connection, actor, name, Desired.PAUSE)
        return made, is_new

    def change(self, actor: str, name: str, spec: str, version: int | None = None) -> Subscription:
        """Replace a subscription's file; see `subscriptions.change_spec`.

        Raises:
            ConfigError: the file is wrong, or the server's policy does not allow what it does.
            ControlError: there is no such subscription, or it has another version.
        """
        self.require_allowed(spec, name)
        with self.database.begin() as connection:
            return subscriptions.change_spec(connection, actor, name, spec, version=version)

    def ask(self, actor: str, name: str, desired: Desired, version: int | None = None) -> Subscription:
        """Ask that a subscription run, pause or be cancelled; see `subscriptions.set_desired`."""
        with self.database.begin() as connection:
            return subscriptions.set_desired(connection, actor, name, desired, version)

    def retry(self, actor: str, name: str) -> Subscription:
        """Let a failed subscription go on from where it was, at once; see `subscriptions.retry`."""
        with self.database.begin() as connection:
            return subscriptions.retry(connection, actor, name)

    def remove(self, actor: str, name: str, version: int | None = None) -> None:
        """Remove a subscription that is stopped; see `subscriptions.remove`."""
        with self.database.begin() as connection:
            subscriptions.remove(connection, actor, name, version)

    # ---- pipeline files ----

    def require_allowed(self, spec: str, name: str) -> None:
        """Refuse a pipeline file that does what this server's policy does not allow.

        Raises:
            ConfigError: it is wrong, or does.
        """
        parse_pipelines(spec, default_name=name)
        self.policy.require(resolved(spec, name, self.data_dir), self.data_dir)

    def runnable(self, subscription: Subscription) -> str:
        """The pipeline file that a worker of this server runs.

        Raises:
            ConfigError: this server's policy does not allow what it does; another's may have.
        """
        self.require_allowed(subscription.spec, subscription.name)
        return resolved(subscription.spec, subscription.name, self.data_dir)

    def pipelines(self, spec: str, name: str) -> tuple[Pipeline, ...]:
        """The pipeline that a file describes, paths absolute, once for each of its sources.

        Raises:
            ConfigError: it is wrong, or the server's policy does not allow what it does.
        """
        self.require_allowed(spec, name)
        return parse_pipelines(resolved(spec, name, self.data_dir), default_name=name)
