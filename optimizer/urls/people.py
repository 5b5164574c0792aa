"""Map the addresses of accounts, teams, releases and notifications.

django-allauth finds its own pages by the names that begin with account_ and mfa_.
"""

from __future__ import annotations

from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path

from optimizer.views import account, audit, confirm, join, notifications, profile, releases, teams

urlpatterns: list[URLPattern | URLResolver] = [
    path("sign-in/", account.sign_in, name="account_login"),
    path("sign-in/code/", mfa.authenticate, name="mfa_authenticate"),
    path("profile/", profile.profile, name="profile"),
    path("profile/password/", profile.password, name="password"),
    path("profile/sessions/", profile.sessions, name="sessions"),
    path("profile/sessions/end-others/", profile.sessions_end_others, name="sessions_end_others"),
    path("profile/sessions/<int:session_id>/end/", profile.session_end, name="session_end"),
    path("profile/confirm/", confirm.confirm, name="account_reauthenticate"),
    path("profile/confirm/code/", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("profile/second-factor/", mfa.index, name="mfa_index"),
    path("profile/second-factor/on/", confirm.after_company(totp.activate_totp), name="mfa_activate_totp"),
    path("profile/second-factor/off/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("profile/second-factor/codes/", recovery.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("profile/second-factor/codes/new/", recovery.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("profile/second-factor/codes/file/", recovery.download_recovery_codes, name="mfa_download_recovery_codes"),
    path("join/<str:token>/", join.join, name="join"),
    path("teams/", teams.teams, name="teams"),
    path("teams/switch/", teams.switch_team, name="switch_team"),
    path("teams/<slug:slug>/", teams.team_page, name="team_page"),
    path("teams/<slug:slug>/rules/", teams.team_rules, name="team_rules"),
    path("teams/<slug:slug>/members/<int:user_id>/role/", teams.member_role, name="member_role"),
    path("teams/<slug:slug>/members/<int:user_id>/remove/", teams.member_remove, name="member_remove"),
    path("teams/<slug:slug>/invitations/", teams.invite, name="invite"),
    path("teams/<slug:slug>/invitations/<int:invitation_id>/revoke/", teams.invitation_revoke,
         name="invitation_revoke"),
    path("teams/<slug:slug>/service-accounts/", teams.service_account_new, name="service_account_new"),
    path("teams/<slug:slug>/service-accounts/<int:user_id>/end/", teams.service_account_end,
         name="service_account_end"),
    path("teams/<slug:slug>/service-accounts/<int:user_id>/tokens/", profile.service_tokens, name="service_tokens"),
    path("teams/<slug:slug>/log/", audit.audit_log, name="audit_log"),
    path("teams/<slug:slug>/log.csv", audit.audit_export, {"kind": "csv"}, name="audit_csv"),
    path("notifications/", notifications.notifications, name="notifications"),
    path("notifications/read/", notifications.notifications_read, name="notifications_read"),
    path("notifications/settings/", notifications.notification_settings, name="notification_settings"),
    path("notifications/<int:notification_id>/", notifications.notification_open, name="notification_open"),
    path("runs/<int:run_id>/follow/", notifications.run_follow, name="run_follow"),
    path("runs/<int:run_id>/privacy/", notifications.run_privacy, name="run_privacy"),
    path("releases/", releases.releases, name="releases"),
    path("runs/<int:run_id>/kernels/<int:number>/release/", releases.release_page, name="release_page"),
    path("releases/<int:release_id>/release/", releases.release_make, name="release_make"),
    path("releases/<int:release_id>/withdraw/", releases.release_withdraw, name="release_withdraw"),
    path("teams/<slug:slug>/log.jsonl", audit.audit_export, {"kind": "jsonl"}, name="audit_jsonl"),
]  # fmt: skip

if settings.OIDC_SERVER:
    from optimizer.views import company  # its models are there only now

    urlpatterns += [
        path("company/", company.connections, name="socialaccount_connections"),
        path("company/", include("allauth.socialaccount.urls")),
        path("company/oidc/<str:provider_id>/login/", company.login, name="openid_connect_login"),
        path("company/oidc/<str:provider_id>/login/callback/", company.callback, name="openid_connect_callback"),
    ]
