"""Sign-in and token forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.http import HttpRequest

from apps.accounts import throttle
from apps.accounts.models import Role, User


class SignInForm(forms.Form):
    """Name and password; says how long to wait after too many failures, never which of the two was wrong."""

    username = forms.CharField(max_length=150, widget=forms.TextInput(attrs={"autocomplete": "username"}))
    password = forms.CharField(widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}))

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.user: User | None = None

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if "username" not in data or "password" not in data:
            return data
        address = str(self.request.META.get("REMOTE_ADDR", ""))
        wait = throttle.wait_seconds(data["username"], address)
        if wait:
            raise forms.ValidationError(f"Too many failed sign-ins. Try again in {wait} s.")
        user = authenticate(self.request, username=data["username"], password=data["password"])
        if not isinstance(user, User):
            throttle.note_failure(data["username"], address)
            raise forms.ValidationError("This name and password do not match an account here.")
        self.user = user
        return data


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, label="What it is for")
    role = forms.ChoiceField(choices=[(role.value, role.label) for role in Role if role != Role.NONE])
    days = forms.IntegerField(min_value=1, max_value=365, initial=90, label="Days it lives")
