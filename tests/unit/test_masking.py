"""Secrets never leave a log: every kind is masked, ordinary words are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from textlogs import megatron_line

from loganalyze.cli import cli
from loganalyze.ingest import ingest
from loganalyze.masking import mask, mask_setting, shapes, unmasked
from loganalyze.pipeline import Judging, report_on
from loganalyze.report import FORMATS, render
from loganalyze.store import read_run, write_run

_HEX = "0123456789abcdef" * 5
_WORD = "F4keF4keN0tAKey" * 8
_UP = "F4KEF4KEN0TAKEY7" * 3

#: Kind -> text around {}, and the invented secret in its place; put together here, so that no
#: line of this file has the shape of a real key.
SECRETS: dict[str, tuple[str, str]] = {
    "aws access": ("key {} in use", "AKIA" + _UP[:16]),
    "aws temporary": ("creds: {}", "ASIA" + _UP[:16]),
    "aws secret": ("aws_secret_access_key = {}", _WORD[:40]),
    "aws session": ("AWS_SESSION_TOKEN={}", _WORD[:80]),
    "signed url": ("GET https://b.example/x?X-Amz-Signature={}&x=1", _HEX[:64]),
    "azure sas": ("https://a.example/c?sv=1&sig={}", _WORD[:44]),
    "huggingface": ("login with {}", "hf_" + _WORD[:34]),
    "huggingface org": ("login with {}", "api_org_" + _WORD[:34]),
    "wandb login": ("wandb login --relogin {}", _HEX[:40]),
    "wandb key": ("WANDB_API_KEY={}", _HEX[:40]),
    "wandb v1": ("using {} now", "wandb_v1_" + _WORD[:60]),
    "anthropic": ("key {}", "sk-" + "ant-api03-" + _WORD[:60]),
    "openai": ("key {}", "sk-" + "proj-" + _WORD[:60]),
    "groq": ("key {}", "gsk_" + _WORD[:52]),
    "xai": ("key {}", "xai-" + _WORD[:80]),
    "nvidia": ("docker login -p {}", "nvapi-" + _WORD[:64]),
    "replicate": ("key {}", "r8_" + _WORD[:37]),
    "langsmith": ("key {}", "lsv2_pt_" + _HEX[:32] + "_" + _HEX[:10]),
    "pinecone": ("key {}", "pcsk_" + _WORD[:60]),
    "github": ("cloning with {}", "ghp_" + _WORD[:36]),
    "github fine": ("cloning with {}", "github_pat_" + _WORD[:70]),
    "gitlab": ("cloning with {}", "glpat-" + _WORD[:20]),
    "slack": ("posting with {}", "xoxb-" + "1234567890-" + _WORD[:24]),
    "slack hook": ("POST https://hooks.slack.com/services/{}", "T0FAKE/B0FAKE/" + _WORD[:24]),
    "feishu hook": ("POST https://open.example/open-apis/bot/v2/hook/{}", _HEX[:36]),
    "dingtalk hook": ("https://oapi.dingtalk.com/robot/send?access_token={}", _HEX[:64]),
    "telegram": ("bot {}", "123456789:" + "AA" + _WORD[:33]),
    "google": ("key {}", "AIza" + _WORD[:35]),
    "google oauth": ("key {}", "ya29." + _WORD[:60]),
    "azure": ("DefaultEndpointsProtocol=https;AccountKey={};E=x", _WORD[:60] + "=="),
    "alibaba": ("key {}", "LTAI" + _WORD[:20]),
    "tencent": ("key {}", "AKID" + _WORD[:32]),
    "volcengine": ("key {}", "AKLT" + _WORD[:40]),
    "stripe": ("key {}", "sk_" + "live_" + _WORD[:24]),
    "sendgrid": ("key {}", "SG." + _WORD[:22] + "." + _WORD[:43]),
    "mailgun": ("key {}", "key-" + _HEX[:32]),
    "twilio": ("key {}", "SK" + _HEX[:32]),
    "npm": ("//registry/:_authToken={}", "npm_" + _WORD[:36]),
    "pypi": ("upload with {}", "pypi-" + _WORD[:80]),
    "docker": ("login {}", "dckr_pat_" + _WORD[:27]),
    "digitalocean": ("key {}", "dop_v1_" + _HEX[:64]),
    "databricks": ("key {}", "dapi" + _HEX[:32]),
    "vault": ("VAULT {}", "hvs." + _WORD[:60]),
    "grafana": ("key {}", "glsa_" + _WORD[:32] + "_" + _HEX[:8]),
    "tailscale": ("up {}", "tskey-auth-" + _WORD[:40]),
    "age": ("{}", "AGE-SECRET-KEY-1" + _UP[:16] * 4),
    "jwt": ("got {}", "eyJ" + _WORD[:30] + ".eyJ" + _WORD[:60] + "." + _WORD[:43]),
    "bearer": ("Authorization: Bearer {}", _WORD[:40]),
    "basic": ("Authorization: Basic {}", _WORD[:24] + "=="),
    "cookie": ("Cookie: session={}", _WORD[:40]),
    "docker auth": ('{{"auth": "{}"}}', _WORD[:40]),
    "url": ("proxy http://{}@proxy.example:8080", "user:f4kepassw0rd"),
    "database url": ("dsn postgresql://{}@db.example/mlflow", "mlflow:f4kepassw0rd"),
    "flag": ("train.py --hub-token {} --lr 1", _WORD[:20]),
    "password": ("password: '{}'", "f4kepassw0rd"),
    "client secret": ("client_secret={}", _WORD[:20]),
    "private key": (
        "{}",
        f"-----BEGIN RSA {'PRIVATE'} KEY-----\nMIIF{_WORD}\n-----END RSA {'PRIVATE'} KEY-----",
    ),
}  # fmt: skip
ORDINARY = (
    "commit 0123456789abcdef0123456789abcdef01234567", "max_tokens: 4096, pad_token: <pad>",
    "tokenizer.json loaded, eos_token_id=2, special tokens: </s>", "use_auth_token=False",
    "task-2031-04-02-sk-learn", "/data/disk-0123456789/shard-00001-of-00099.bin",
    "PWD=/home/someone/project", "sha256:" + _HEX[:64], "run-20310402_101112-a1b2c3d4",
    "http://localhost:6006/#scalars", "https://example.org/a@b", "GPU-01234567-89ab-cdef-0123",
    "password: None", "token 512 of 4096", "key: value", "secret = null", "iteration 5/ 10 | loss",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_secret_is_masked(name: str) -> None:
    """The secret is gone, what stands around it is kept, and masking again changes nothing."""
    around, secret = SECRETS[name]
    text = mask(f"before {around.format(secret)} after")
    assert secret not in text
    assert secret[-12:] not in text
    assert "[masked:" in text
    assert text.startswith("before ")
    assert mask(text) == text


def test_kinds() -> None:
    """At least forty kinds, each tried by a test above."""
    assert len({shape.kind for shape in shapes()}) >= 40
    assert len(SECRETS) >= 40


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    """Hashes, paths, token counts and empty settings are no secrets."""
    assert mask(text) == text


def test_settings() -> None:
    """A setting's name tells, whatever the value; numbers and absent values stay."""
    assert mask_setting("wandb.api_key", "zzzzzz") == "[masked:setting]"
    assert mask_setting("hf_token", "zzzzzz") == "[masked:setting]"
    assert mask_setting("hub_token", "None") == "None"
    assert mask_setting("max_tokens", "123456789") == "123456789"
    assert mask_setting("pad_token", "<|endoftext|>") == "<|endoftext|>"


@pytest.mark.parametrize(
    "filler", ["a", "sk-", "://", "password=", "eyJ", "-----BEGIN ", "Cookie:a"]
)
def test_time_is_linear(filler: str) -> None:
    """A megabyte of beginnings of secrets is gone through (a quadratic pattern would not end)."""
    text = filler * (300_000 // len(filler))
    assert isinstance(mask(text), str)


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    """A failing log in whose error lines, settings and unknown lines every secret stands."""
    words = [around.format(secret) for around, secret in SECRETS.values() if "\n" not in secret]
    lines = ["  hf_token ........................... " + SECRETS["huggingface"][1], *words]
    lines += [megatron_line(n, lm_loss="nan" if n > 30 else "2.5") for n in range(1, 60)]
    for number, word in enumerate(words):
        lines += [f"[rank{number}]: Traceback (most recent call last):",
                  f'[rank{number}]:   File "x.py", line {number}, in <module>',
                  f"[rank{number}]: RuntimeError: failed: {word}"]  # fmt: skip
    path = tmp_path / "leaky.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("format_", FORMATS)
def test_no_report_shows_a_secret(leaky: Path, format_: str) -> None:
    """None of the secrets is in any output."""
    text = render(report_on([str(leaky)], Judging()), format_, "en")
    assert not [name for name, (_, secret) in SECRETS.items() if secret in text]


def test_no_secret_is_stored(leaky: Path) -> None:
    """Events, settings and samples of unknown lines are masked before they are stored."""
    (run,) = ingest([str(leaky)]).runs
    samples = [line for source in run.sources for line in source.account.unknown_samples]
    stored = json.dumps([run.events.to_dicts(), dict(run.meta.config), samples], default=str)
    assert not [name for name, (_, secret) in SECRETS.items() if secret in stored]


def test_no_name_holds_a_secret(tmp_path: Path) -> None:
    """A secret in a file's name or a column's is in no run's name, no column and no output."""
    secrets = [SECRETS[name][1] for name in ("github", "huggingface", "wandb v1")]
    path = tmp_path / f"train-{secrets[0]}.csv"
    rows = "".join(f"{n},{2 + 1 / n},{n},{n}\n" for n in range(1, 30))
    path.write_text(f"step,loss,{secrets[1]},{secrets[2]}\n{rows}")
    report = report_on([str(path)], Judging())
    run = report.diagnoses[0].run
    place = write_run(run, tmp_path / "runs")
    texts = [str(place), run.meta.grouping, *run.readings.columns, (place / "run.json").read_text()]
    texts += [render(report, format_, "en") for format_ in FORMATS]
    assert not [secret for secret in secrets for text in texts if secret in text]
    assert len([name for name in run.readings.columns if "[masked:" in name]) == 2


def test_no_mask_keeps_them_and_says_so(leaky: Path) -> None:
    """--no-mask shows the log as it is, with a warning on standard error."""
    with unmasked():
        assert mask(SECRETS["github"][1]) == SECRETS["github"][1]
    call = ["ingest", str(leaky), "--store", str(leaky.parent / "runs"), "--no-mask"]
    result = CliRunner().invoke(cli, call, standalone_mode=False)
    assert "--no-mask" in result.stderr
    stored = json.dumps(read_run(leaky.parent / "runs" / "leaky").events.to_dicts(), default=str)
    assert SECRETS["github"][1] in stored
    assert mask(SECRETS["github"][1]) != SECRETS["github"][1]
