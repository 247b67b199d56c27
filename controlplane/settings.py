"""Settings of the control plane, all of them from the environment. `docs/settings.md` lists every variable."""

from __future__ import annotations

from pathlib import Path

from celery.schedules import crontab

from controlplane import env

BASE_DIR = Path(__file__).resolve().parent.parent

# -- the web -----------------------------------------------------------------------------------------------------------
DEFAULT_SECRET_KEY = "insecure-default-for-loopback-only"
DEBUG = env.boolean("MUSTER_DEBUG", False)
SECRET_KEY = env.secret("MUSTER_SECRET_KEY", DEFAULT_SECRET_KEY)
SECRET_KEY_FALLBACKS = [word for word in env.secret("MUSTER_SECRET_KEY_FALLBACKS", "").split(",") if word]
ALLOWED_HOSTS = env.words("MUSTER_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("MUSTER_TRUSTED_ORIGINS", "")
BEHIND_TLS = env.boolean("MUSTER_BEHIND_TLS", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SECURE_SSL_REDIRECT = False  # the proxy in front does this; agents must not be redirected from a POST
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
# plotly adds one <style> element of its own and sets style attributes; both are data, neither runs script.
CONTENT_SECURITY_POLICY_STYLE = CONTENT_SECURITY_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "django_filters",
    "django_htmx",
    "apps.core",
    "apps.accounts",
    "apps.fleet",
    "apps.storage",
    "apps.checkpoints",
    "apps.transfers",
    "apps.audits",
    "apps.drills",
    "apps.recovery",
    "apps.alerts",
    "apps.dashboard",
    "controlplane",
]

MIDDLEWARE = [
    "apps.core.middleware.RequestIdMiddleware",
    "apps.core.tracing_middleware.TracingMiddleware",
    "apps.core.access_log.AccessLogMiddleware",
    "apps.core.middleware.SecurityHeadersMiddleware",
    "apps.core.middleware.TextMiddleware",
    "apps.core.etags.EtagMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "apps.core.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.accounts.api_door.ApiDoorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
WSGI_APPLICATION = "controlplane.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.dashboard.context.shell",
            ],
            "builtins": ["apps.core.templatetags.muster"],
        },
    }
]

# -- state -------------------------------------------------------------------------------------------------------------
DATABASES = {"default": env.database("DATABASE_URL", f"sqlite:///{BASE_DIR / 'var' / 'muster.sqlite3'}")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.redis("REDIS_URL", "redis://127.0.0.1:6379/0")

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "readiness"
LOGOUT_REDIRECT_URL = "sign-in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Sign-in through an OpenID Connect provider, where its address and our name there are given.
OIDC_ISSUER = env.text("MUSTER_OIDC_ISSUER")
OIDC_CLIENT_ID = env.text("MUSTER_OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env.secret("MUSTER_OIDC_CLIENT_SECRET")
OIDC_SCOPES = env.text("MUSTER_OIDC_SCOPES", "openid profile email groups")
OIDC_GROUPS_CLAIM = env.text("MUSTER_OIDC_GROUPS_CLAIM", "groups")
OIDC_ROLES = env.pairs("MUSTER_OIDC_ROLES")
OIDC_LABEL = env.text("MUSTER_OIDC_LABEL", "Sign in with single sign-on")

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "var" / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
# The checkout serves its own files by name; a deployment that ran `collectstatic` serves hashed, immutable ones.
HASHED_STATIC = env.boolean("MUSTER_HASHED_STATIC", False)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"
        if HASHED_STATIC
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not HASHED_STATIC
WHITENOISE_AUTOREFRESH = DEBUG

# -- REST --------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["apps.accounts.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.parsers.BoundedJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["apps.core.filters.OnceFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "apps.core.pagination.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "apps.core.openapi.ProblemAutoSchema",
    "EXCEPTION_HANDLER": "apps.core.problems.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "DATETIME_FORMAT": "%Y-%m-%dT%H:%M:%S.%fZ",
    "PAGE_SIZE": 50,
    "URL_FORMAT_OVERRIDE": None,  # `?format=dcp` filters by checkpoint format
}
API_RATE_PER_MINUTE = env.integer("MUSTER_API_RATE_PER_MINUTE", 600)
SPECTACULAR_SETTINGS = {
    "TITLE": "Muster",
    "DESCRIPTION": "Control plane for fleets of AI-training checkpoints. Every error is application/problem+json.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.core.openapi.add_problem_components",
    ],
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
    "ENUM_NAME_OVERRIDES": {
        "MoverEnum": "apps.transfers.models.RetentionPolicy.Where",
        "WhereEnum": "apps.audits.models.AuditPolicy.Where",
        "TierKindEnum": "apps.storage.models.StorageTier.Kind",
        "RoleEnum": "apps.accounts.serializers.TOKEN_ROLES",
        "ShardRoleEnum": "apps.checkpoints.batch_serializers.SHARD_ROLES",
        "DrillKindEnum": "apps.drills.models.DrillKind",
        "AuditModeEnum": "apps.audits.models.Audit.Mode",
        "AuditPolicyModeEnum": "apps.audits.models.AuditPolicy.Mode",
        "AlertRuleKindEnum": "apps.alerts.models.RuleKind",
        "AlertSeverityEnum": "apps.alerts.models.Severity",
    },
}

# -- Celery: messages only wake; rows are the truth --------------------------------------------------------------------
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_SOFT_TIME_LIMIT = 50
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_ROUTES = {
    "muster.scan.*": {"queue": "scan"},
    "muster.move.*": {"queue": "move"},
    "muster.notify.*": {"queue": "notify"},
}
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    # A wake-up is not worth waiting for: without Redis each would hold its request for 6 s, and the sweeper does it.
    "max_retries": 1,
    "interval_start": 0.1,
    "interval_step": 0.1,
    "interval_max": 0.1,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "controlplane.alive:WatchedScheduler"
# Beat's schedule is code; users' schedules are rows that `tick` reads. Expiry keeps a stopped worker from a backlog.
CELERY_BEAT_SCHEDULE = {
    "tick": {"task": "muster.control.tick", "schedule": 1.0, "options": {"expires": 5}},
    "sweep": {"task": "muster.control.sweep", "schedule": 10.0, "options": {"expires": 20}},
    "check_activity": {"task": "muster.scan.check_activity", "schedule": crontab(hour=3, minute=17)},
    "dead_man": {"task": "muster.notify.dead_man", "schedule": 60.0, "options": {"expires": 50}},
    **{
        f"pulse_{queue}": {
            "task": "muster.control.pulse",
            "schedule": 15.0,
            "args": (queue,),
            "options": {"queue": queue, "expires": 60},
        }
        for queue in ("control", "scan", "move", "notify")
    },
}

# -- telling others ----------------------------------------------------------------------------------------------------
DEAD_MAN_URL = env.secret("MUSTER_DEAD_MAN_URL", "")
PUBLIC_URL = env.origin("MUSTER_PUBLIC_URL")
globals().update(env.smtp("MUSTER_SMTP_URL"))
DEFAULT_FROM_EMAIL = env.text("MUSTER_MAIL_FROM", "muster@localhost")
DELIVERY_KEEP_DAYS = env.integer("MUSTER_DELIVERY_KEEP_DAYS", 30)

# -- agents ------------------------------------------------------------------------------------------------------------
AGENT_POLL_SECONDS = env.integer("MUSTER_AGENT_POLL_SECONDS", 50, minimum=1)
AGENT_STALE_SECONDS = env.integer("MUSTER_AGENT_STALE_SECONDS", 90, minimum=1)
AGENT_EVENT_KEEP_DAYS = env.integer("MUSTER_AGENT_EVENT_KEEP_DAYS", 90)
AGENT_LOST_SECONDS = env.integer("MUSTER_AGENT_LOST_SECONDS", 300, minimum=2)
SCHEDULERS = env.pairs("MUSTER_SCHEDULERS")
CLUSTER_INVENTORY_SECONDS = env.integer("MUSTER_CLUSTER_INVENTORY_SECONDS", 300)
WORKER_ROOTS = [root.rstrip("/") or "/" for root in env.words("MUSTER_WORKER_ROOTS", "")]
ALLOWED_NETWORKS = env.networks("MUSTER_ALLOWED_NETWORKS")
S3_PRESIGN = env.boolean("MUSTER_S3_PRESIGN", False)
S3_ENDPOINTS = env.words("MUSTER_S3_ENDPOINTS", "")
S3_PRESIGN_SECONDS = env.integer("MUSTER_S3_PRESIGN_SECONDS", 3600, minimum=60)
SCAN_SECONDS = env.integer("MUSTER_SCAN_SECONDS", 300)
DRILL_DAYS = env.integer("MUSTER_DRILL_DAYS", 7)
CEILING_DAYS = env.integer("MUSTER_CEILING_DAYS", 0)
SCAN_SLICE_SECONDS = 30  # below Celery's limits of time
SCAN_LEASE_SECONDS = 120  # longer than a Celery task may live: a second worker takes over only from a dead one
TRANSFER_SLICE_SECONDS, TRANSFER_LEASE_SECONDS = 30, 120  # as for scans
TRANSFER_RETRY_SECONDS = 30
SCAN_KEEP_DAYS = env.integer("MUSTER_SCAN_KEEP_DAYS", 30)
TASK_ACK_SECONDS = 15
TASK_LEASE_SECONDS = 60
TASK_GRACE_SECONDS = 30
TASK_MAX_ATTEMPTS = 3
AGENT_MAX_BODY_BYTES = 64 * 1024 * 1024  # agents know it as `protocol.wire.MAX_BODY_BYTES`
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 1024 * 1024

LOG_FORMAT = env.choice("MUSTER_LOG_FORMAT", "line", ("line", "json"))
ACCESS_LOG = env.boolean("MUSTER_ACCESS_LOG", LOG_FORMAT == "json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "class": "muster_agent.protocol.printable.LineFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
            "datefmt": "%Y-%m-%dT%H:%M:%S%z",
        },
        "json": {"()": "apps.core.logs.JsonFormatter"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": env.level("MUSTER_LOG_LEVEL", "INFO")},
    # uvicorn and Django bring handlers of their own, whose lines would look different from ours.
    "loggers": {
        name: {"handlers": [], "propagate": True} for name in ("uvicorn", "uvicorn.error", "django", "django.server")
    },
}

DRF_STANDARDIZED_ERRORS = {
    "EXCEPTION_FORMATTER_CLASS": "apps.core.problems.ProblemFormatter",
    "ENABLE_IN_DEBUG_FOR_UNHANDLED_EXCEPTIONS": True,
}
