"""Sign people in and out."""

from __future__ import annotations

from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.forms.sign_in import SignInForm


class _SignIn(LoginView):
    """Ask for name and password, then for the second factor where the person has one."""

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Start the session, or redirect to the page that asks for a code, once the password is right."""
        answer: HttpResponse = perform_login(self.request, form.get_user(), redirect_url=self.get_success_url())
        return answer


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponseBase:
    """Show the sign-in form, which asks to wait after too many failures."""
    view = _SignIn.as_view(
        template_name="account/sign_in.html",
        authentication_form=SignInForm,
        redirect_authenticated_user=True,
        extra_context={"company": settings.OIDC_NAME if settings.OIDC_SERVER else ""},
    )
    # The page posts to this site, which redirects to the company's server.
    return towards_company(view(request))


def towards_company(response: HttpResponseBase) -> HttpResponseBase:
    """Allow the page to send its forms to the company's sign-in, where there is one."""
    if settings.OIDC_SERVER:
        response.headers["Content-Security-Policy"] = settings.POLICY_TOWARDS_COMPANY
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponseBase:
    """End the session."""
    return LogoutView.as_view()(request)
