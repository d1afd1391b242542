"""The settings of the project; the databases come from the environment."""

import json
import os
from pathlib import Path

import django

BUILT_IN = django.VERSION >= (6, 0)
BASE_DIR = Path(__file__).parent

SECRET_KEY = "only for tests"
DEBUG = True
USE_TZ = True
TIME_ZONE = "Europe/Paris"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    *([] if BUILT_IN else ["django_tasks"]),
    "tasklib.contrib.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = json.loads(os.environ["PROJECT_DATABASES"])
TASKS = {
    "default": {
        "BACKEND": "tasklib.contrib.django.TasklibBackend",
        "QUEUES": ["default", "emails", "late mail"],
        "OPTIONS": {"base_retry_delay_seconds": 0.05, "dashboard_url": "http://localhost:8000/dashboard/"},
    },
    "immediate": {
        "BACKEND": f"{'django.tasks' if BUILT_IN else 'django_tasks'}.backends.immediate.ImmediateBackend",
        "QUEUES": [],
    },
}
for name, value in json.loads(os.environ.get("PROJECT_OPTIONS", "{}")).items():
    TASKS["default"]["OPTIONS"][name] = value
