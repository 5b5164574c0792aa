import pytest, random
from django.test import Client
from benchmarks import pages as bench
from optimizer.synthetic.campaigns import make_settled_campaign
from tests.factories import store_problems_and_targets, make_team, make_user
pytestmark = pytest.mark.django_db
def test_bench():
    store_problems_and_targets()
    team = make_team(); user = make_user(team)
    one = make_settled_campaign(team, 250, 4, 3)
    from django.db import connection
    with connection.cursor() as c: c.execute("ANALYZE")
    client = Client(); client.force_login(user)
    page = f"/campaigns/{one.pk}/"
    rng = random.Random(0)
    rows = [bench.measure(client, name, address, 20) for name, address in {
        "campaigns": lambda: "/campaigns/", "campaign": lambda: page, "runs": lambda: f"{page}runs/?page={rng.randint(1,5)}",
        "fast": lambda: f"{page}chart/fast/", "bands": lambda: f"{page}chart/bands/?axis=tokens", "json": lambda: f"{page}report.json"}.items()]
    print(bench._table(rows))
