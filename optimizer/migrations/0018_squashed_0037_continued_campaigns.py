"""Bring a database from migration 0017 to 0037 at once, a new one or one that has had none of the steps between.

What the steps did to rows is done here too. It is one transaction, so that a first start that is killed can begin
again; a site that has rows is stopped meanwhile (docs/operations.md). See 0001_squashed_0017.
"""

from importlib import import_module

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.functions.comparison
from django.conf import settings
from django.db import migrations, models

from optimizer.migrations._at_once import AtOnce

SIGN_INS = import_module("optimizer.migrations.0018_sign_ins_to_allauth")
EARLIER_RUNS = import_module("optimizer.migrations.0022_earlier_runs_have_no_tools")
WAITING_JOBS = import_module("optimizer.migrations.0031_sign_waiting_jobs")


class Migration(migrations.Migration):
    replaces = [
        ('optimizer', '0018_sign_ins_to_allauth'),
        ('optimizer', '0019_sign_ins_without_model'),
        ('optimizer', '0020_findings_consolidated'),
        ('optimizer', '0021_tool_calls'),
        ('optimizer', '0022_earlier_runs_have_no_tools'),
        ('optimizer', '0023_external_runs'),
        ('optimizer', '0024_campaigns'),
        ('optimizer', '0025_sign_ins_dropped'),
        ('optimizer', '0026_endtoend_reports_and_watch'),
        ('optimizer', '0027_problem_uploads'),
        ('optimizer', '0028_leaderboard_and_views'),
        ('optimizer', '0029_jobs_by_worker'),
        ('optimizer', '0030_job_signature'),
        ('optimizer', '0031_sign_waiting_jobs'),
        ('optimizer', '0032_problems_of_teams'),
        ('optimizer', '0033_compiled_ahead'),
        ('optimizer', '0034_jobs_in_turn'),
        ('optimizer', '0035_problem_words_and_targets'),
        ('optimizer', '0036_worker_keys'),
        ('optimizer', '0037_continued_campaigns'),
    ]

    dependencies = [
        ('optimizer', '0017_opponents_indexed'),
        ('usersessions', '0001_initial'),
    ]

    operations = [
        migrations.RunPython(SIGN_INS.copy, migrations.RunPython.noop),
        AtOnce([
            migrations.CreateModel(
                name='CallTurn',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('number', models.PositiveSmallIntegerField()),
                    ('text', models.TextField(blank=True)),
                    ('native', models.BooleanField(default=False)),
                    ('items', models.JSONField(blank=True, default=list)),
                    ('prompt_tokens', models.PositiveIntegerField(blank=True, null=True)),
                    ('answer_tokens', models.PositiveIntegerField(blank=True, null=True)),
                    ('cached_tokens', models.PositiveIntegerField(blank=True, null=True)),
                    ('cost_usd', models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True)),
                    ('transport', models.JSONField(blank=True, default=dict)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('answered_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('call', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='turns', to='optimizer.llmcall')),
                ],
                options={
                    'ordering': ['pk'],
                    'constraints': [models.UniqueConstraint(fields=('call', 'number'), name='one_turn_per_number')],
                },
            ),
            migrations.CreateModel(
                name='ToolCall',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('number', models.PositiveSmallIntegerField()),
                    ('reference', models.CharField(blank=True, max_length=200)),
                    ('name', models.CharField(max_length=40)),
                    ('arguments', models.JSONField(blank=True, default=dict)),
                    ('language', models.CharField(blank=True, max_length=10)),
                    ('source', models.TextField(blank=True)),
                    ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('refused', 'Refused'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='queued', max_length=10)),
                    ('stage', models.CharField(blank=True, max_length=30)),
                    ('result_text', models.TextField(blank=True)),
                    ('summary', models.JSONField(blank=True, default=dict)),
                    ('device_s', models.FloatField(default=0)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('started_at', models.DateTimeField(blank=True, null=True)),
                    ('finished_at', models.DateTimeField(blank=True, null=True)),
                    ('job', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='tool_call', to='optimizer.job')),
                    ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tool_calls', to='optimizer.run')),
                    ('turn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tool_calls', to='optimizer.callturn')),
                ],
                options={
                    'ordering': ['pk'],
                    'indexes': [models.Index(condition=models.Q(('state__in', ['queued', 'running'])), fields=['run'], name='tool_call_open')],
                    'constraints': [models.UniqueConstraint(fields=('turn', 'number'), name='one_tool_call_per_number')],
                },
            ),
            migrations.CreateModel(
                name='Campaign',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('title', models.CharField(max_length=120)),
                    ('baselines', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), size=None)),
                    ('objective', models.CharField(choices=[('device', 'Device time'), ('call', 'Call time (host included)')], default='device', max_length=10)),
                    ('dispatcher', models.CharField(default='celery', max_length=20)),
                    ('dispatch_settings', models.JSONField(blank=True, default=dict)),
                    ('unusable', models.JSONField(blank=True, default=list)),
                    ('order_seed', models.BigIntegerField(default=0)),
                    ('is_private', models.BooleanField(default=False)),
                    ('limit_usd', models.DecimalField(blank=True, decimal_places=4, max_digits=10, null=True)),
                    ('limit_tokens', models.PositiveBigIntegerField(blank=True, null=True)),
                    ('limit_device_minutes', models.FloatField(blank=True, null=True)),
                    ('parallel_runs', models.PositiveSmallIntegerField(default=1)),
                    ('state', models.CharField(choices=[('running', 'Running'), ('paused', 'Paused'), ('settling', 'Settling'), ('stopping', 'Stopping'), ('finished', 'Finished'), ('stopped', 'Stopped')], default='running', max_length=10)),
                    ('stop_reason', models.CharField(blank=True, max_length=300)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('settling_at', models.DateTimeField(blank=True, null=True)),
                    ('finished_at', models.DateTimeField(blank=True, null=True)),
                    ('advanced_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='campaigns', to=settings.AUTH_USER_MODEL)),
                    ('target', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='campaigns', to='optimizer.target')),
                    ('team', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='campaigns', to='optimizer.team')),
                    ('suite', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='campaigns', to='optimizer.suite')),
                ],
                options={
                    'indexes': [models.Index(fields=['team', '-created_at'], name='optimizer_c_team_id_89f2f1_idx'), models.Index(condition=models.Q(('state__in', ('running', 'settling', 'stopping'))), fields=['state'], name='campaign_live')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('parallel_runs__gte', 1)), name='campaign_parallel_runs'), models.CheckConstraint(condition=models.Q(('limit_usd__isnull', True), ('limit_usd__gte', 0), _connector='OR'), name='campaign_usd')],
                },
            ),
            migrations.CreateModel(
                name='CampaignConfiguration',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('position', models.PositiveSmallIntegerField()),
                    ('name', models.CharField(max_length=60)),
                    ('strategy', models.CharField(max_length=40)),
                    ('settings', models.JSONField(blank=True, default=dict)),
                    ('providers', models.JSONField(blank=True, default=dict)),
                    ('budget', models.JSONField(blank=True, default=dict)),
                    ('halted_why', models.CharField(blank=True, max_length=300)),
                    ('campaign', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='configurations', to='optimizer.campaign')),
                ],
                options={
                    'ordering': ['position'],
                    'constraints': [models.UniqueConstraint(fields=('campaign', 'name'), name='one_configuration_per_name'), models.UniqueConstraint(fields=('campaign', 'position'), name='one_configuration_per_position')],
                },
            ),
            migrations.CreateModel(
                name='CampaignCell',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(max_length=200)),
                    ('seed', models.BigIntegerField()),
                    ('order', models.PositiveIntegerField()),
                    ('is_skipped', models.BooleanField(default=False)),
                    ('is_held', models.BooleanField(default=False)),
                    ('is_closed', models.BooleanField(default=False)),
                    ('why', models.CharField(blank=True, max_length=300)),
                    ('steps', models.JSONField(blank=True, default=list)),
                    ('campaign', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='cells', to='optimizer.campaign')),
                    ('problem_version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='campaign_cells', to='optimizer.problemversion')),
                    ('run', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='campaign_cell', to='optimizer.run')),
                    ('configuration', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='cells', to='optimizer.campaignconfiguration')),
                    ('before_s', models.FloatField(db_default=0.0, default=0.0)),
                    ('is_behind', models.BooleanField(db_default=False, default=False)),
                    ('is_continuing', models.BooleanField(db_default=False, default=False)),
                    ('continuations', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ],
                options={
                    'ordering': ['order'],
                    'constraints': [models.UniqueConstraint(fields=('campaign', 'problem_version', 'configuration', 'seed'), name='one_cell_per_combination'), models.UniqueConstraint(fields=('campaign', 'order'), name='one_cell_per_place'), models.CheckConstraint(condition=models.Q(('is_skipped', False), ('run__isnull', True), _connector='OR'), name='skipped_has_no_run'), models.CheckConstraint(condition=models.Q(('is_continuing', False), models.Q(('is_closed', False), ('run__isnull', False)), _connector='OR'), name='continuing_has_a_run')],
                },
            ),
            migrations.CreateModel(
                name='CampaignTiming',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('baseline', models.CharField(max_length=40)),
                    ('order', models.PositiveIntegerField()),
                    ('campaign', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='timings', to='optimizer.campaign')),
                    ('cell', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='timings', to='optimizer.campaigncell')),
                    ('evaluation', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='campaign_timing', to='optimizer.evaluation')),
                    ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='+', to='optimizer.kernel')),
                ],
                options={
                    'ordering': ['order'],
                    'constraints': [models.UniqueConstraint(fields=('cell', 'baseline'), name='one_timing_per_baseline'), models.UniqueConstraint(fields=('campaign', 'order'), name='one_timing_per_place')],
                },
            ),
            migrations.CreateModel(
                name='RetimeRound',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('reason', models.CharField(blank=True, max_length=200)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('finished_at', models.DateTimeField(blank=True, null=True)),
                    ('advanced_at', models.DateTimeField(blank=True, null=True)),
                    ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('target', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='retime_rounds', to='optimizer.target')),
                    ('team', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='retime_rounds', to='optimizer.team')),
                    ('software', models.JSONField(default=list)),
                ],
                options={
                    'ordering': ['-pk'],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('finished_at', None)), fields=('team', 'target'), name='one_open_round_per_target')],
                },
            ),
            migrations.CreateModel(
                name='Retiming',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('verdict', models.CharField(blank=True, choices=[('same', 'No change shown'), ('slower', 'Slower'), ('faster', 'Faster'), ('broken', 'No longer correct'), ('unknown', 'Not measured')], max_length=8)),
                    ('ratio', models.FloatField(blank=True, null=True)),
                    ('text', models.CharField(blank=True, max_length=300)),
                    ('first', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='optimizer.evaluation')),
                    ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='retimings', to='optimizer.kernel')),
                    ('reference', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='optimizer.evaluation')),
                    ('round', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='retimings', to='optimizer.retimeround')),
                    ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='optimizer.run')),
                    ('second', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='optimizer.evaluation')),
                ],
                options={
                    'ordering': ['pk'],
                    'constraints': [models.UniqueConstraint(fields=('round', 'kernel'), name='one_retiming_per_kernel')],
                },
            ),
            migrations.CreateModel(
                name='Suite',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('slug', models.SlugField(max_length=80)),
                    ('number', models.PositiveIntegerField(default=1)),
                    ('title', models.CharField(max_length=200)),
                    ('origin', models.CharField(blank=True, max_length=300)),
                    ('version', models.CharField(blank=True, max_length=80)),
                    ('licence', models.CharField(blank=True, max_length=120)),
                    ('content_hash', models.CharField(max_length=64)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                ],
                options={
                    'ordering': ['slug', '-number'],
                    'constraints': [models.UniqueConstraint(fields=('slug', 'number'), name='one_number_per_suite')],
                },
            ),
            migrations.CreateModel(
                name='SuiteEntry',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('position', models.PositiveIntegerField()),
                    ('name', models.CharField(max_length=200)),
                    ('complaint', models.CharField(blank=True, max_length=500)),
                    ('footprint_bytes', models.BigIntegerField(blank=True, null=True)),
                    ('problem_version', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='suite_entries', to='optimizer.problemversion')),
                    ('suite', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='optimizer.suite')),
                ],
                options={
                    'ordering': ['position'],
                    'constraints': [models.UniqueConstraint(fields=('suite', 'name'), name='one_entry_per_name'), models.CheckConstraint(condition=models.Q(('problem_version__isnull', False), models.Q(('complaint', ''), _negated=True), _connector='OR'), name='entry_usable_or_named')],
                },
            ),
            migrations.CreateModel(
                name='EndToEndReport',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('script', models.CharField(max_length=200)),
                    ('function', models.CharField(blank=True, max_length=200)),
                    ('device', models.CharField(max_length=200)),
                    ('torch_version', models.CharField(blank=True, max_length=60)),
                    ('without_s', models.FloatField()),
                    ('with_s', models.FloatField()),
                    ('speedup', models.FloatField()),
                    ('low', models.FloatField()),
                    ('high', models.FloatField()),
                    ('floor', models.FloatField()),
                    ('verdict', models.CharField(choices=[('faster', 'Faster'), ('same', 'Same'), ('slower', 'Slower')], max_length=10)),
                    ('agrees', models.BooleanField()),
                    ('results', models.PositiveIntegerField()),
                    ('calls', models.PositiveBigIntegerField()),
                    ('missed', models.JSONField(default=dict)),
                    ('others', models.JSONField(default=list)),
                    ('sessions', models.PositiveIntegerField()),
                    ('rounds', models.PositiveIntegerField()),
                    ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='endtoend_reports', to='optimizer.kernel')),
                ],
                options={
                    'ordering': ['-pk'],
                    'constraints': [models.CheckConstraint(condition=models.Q(('floor__gte', 1), ('low__gt', 0), ('low__lte', models.F('speedup')), ('speedup__lte', models.F('high'))), name='endtoend_interval_holds_speedup')],
                },
            ),
            migrations.CreateModel(
                name='ProblemUpload',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.SlugField(max_length=80)),
                    ('file_name', models.CharField(max_length=200)),
                    ('content', models.BinaryField()),
                    ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('ready', 'Ready'), ('refused', 'Refused'), ('added', 'Added')], default='queued', max_length=10)),
                    ('complaints', models.JSONField(default=list)),
                    ('inspection', models.JSONField(null=True)),
                    ('fence', models.PositiveIntegerField(default=0)),
                    ('lease_until', models.DateTimeField(null=True)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='optimizer.problemversion')),
                    ('team', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='optimizer.team')),
                ],
                options={
                    'indexes': [models.Index(condition=models.Q(('state__in', ['queued', 'running'])), fields=['created_at'], name='unfinished_uploads')],
                },
            ),
            migrations.CreateModel(
                name='SavedView',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(max_length=60)),
                    ('query', models.CharField(blank=True, max_length=1000)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_views', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['name'],
                    'constraints': [models.UniqueConstraint(fields=('user', 'name'), name='one_view_per_name_and_user')],
                },
            ),
            migrations.CreateModel(
                name='AheadBatch',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('key', models.CharField(max_length=100)),
                    ('variants', models.JSONField()),
                    ('builds', models.JSONField(blank=True, default=list)),
                    ('error', models.TextField(blank=True)),
                    ('created_at', models.DateTimeField(auto_now_add=True)),
                    ('finished_at', models.DateTimeField(blank=True, null=True)),
                    ('basis', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='optimizer.kernel')),
                    ('job', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='ahead_batch', to='optimizer.job')),
                    ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='ahead_batches', to='optimizer.run')),
                ],
                options={
                    'ordering': ['pk'],
                    'indexes': [models.Index(condition=models.Q(('finished_at__isnull', True)), fields=['run'], name='ahead_batch_open')],
                    'constraints': [models.UniqueConstraint(fields=('run', 'key'), name='one_ahead_batch_per_key')],
                },
            ),
            migrations.CreateModel(
                name='WorkerKey',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('token_digest', models.CharField(max_length=64, unique=True)),
                    ('public_key', models.CharField(max_length=64)),
                    ('registered_at', models.DateTimeField(auto_now_add=True)),
                ],
            ),
            migrations.RemoveIndex(
                model_name='job',
                name='job_waiting',
            ),
            migrations.RemoveField(
                model_name='target',
                name='measured',
            ),
            migrations.RemoveField(
                model_name='target',
                name='measured_at',
            ),
            migrations.AddField(
                model_name='evaluation',
                name='purpose',
                field=models.CharField(blank=True, choices=[('', 'Search'), ('settling', 'Settling of a campaign'), ('retiming', 'Regression watch'), ('ranking', 'Leaderboard')], default='', max_length=10),
            ),
            migrations.AddField(
                model_name='job',
                name='place',
                field=models.BigIntegerField(blank=True, null=True),
            ),
            migrations.AddField(
                model_name='job',
                name='signature',
                field=models.CharField(blank=True, db_default='', default='', max_length=200),
            ),
            migrations.AddField(
                model_name='problem',
                name='team',
                field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='problems', to='optimizer.team'),
            ),
            migrations.AddField(
                model_name='run',
                name='ended_by_budget',
                field=models.BooleanField(blank=True, null=True),
            ),
            migrations.AddField(
                model_name='run',
                name='finish_reason',
                field=models.CharField(blank=True, max_length=300),
            ),
            migrations.AddField(
                model_name='run',
                name='priority',
                field=models.SmallIntegerField(default=0),
            ),
            migrations.AddField(
                model_name='run',
                name='reopened_at',
                field=models.DateTimeField(blank=True, null=True),
            ),
            migrations.AlterField(
                model_name='auditentry',
                name='action',
                field=models.CharField(choices=[('run.started', 'Started a run'), ('run.paused', 'Paused a run'), ('run.resumed', 'Resumed a run'), ('run.stopped', 'Stopped a run'), ('run.finished', 'Finished a run'), ('run.budget', "Changed a run's budget"), ('run.privacy', "Changed a run's visibility"), ('campaign.started', 'Started a campaign'), ('campaign.paused', 'Paused a campaign'), ('campaign.resumed', 'Resumed a campaign'), ('campaign.stopped', 'Stopped a campaign'), ('campaign.limits', "Changed a campaign's limits"), ('campaign.continued', 'Continued a campaign with larger budgets'), ('retime.started', 'Re-timed released kernels'), ('leaders.retimed', 'Re-timed the top of a leaderboard'), ('kernel.reviewed', 'Reviewed a kernel'), ('release.asked', 'Requested a release'), ('release.made', 'Released a kernel'), ('release.withdrawn', 'Withdrew a release'), ('endtoend.stored', 'Stored an end-to-end report'), ('member.added', 'Joined'), ('member.role', 'Changed a role'), ('member.removed', 'Removed a member'), ('member.left', 'Left'), ('invitation.made', 'Invited a member'), ('invitation.revoked', 'Revoked an invitation'), ('service.added', 'Created a service account'), ('service.ended', 'Disabled a service account'), ('token.made', 'Created an API token'), ('token.revoked', 'Revoked an API token'), ('team.made', 'Created a team'), ('team.changed', "Changed the team's settings"), ('provider.saved', 'Changed a model provider'), ('provider.deleted', 'Removed a model provider'), ('problem.added', 'Added a problem'), ('audit.exported', 'Exported this log')], max_length=30),
            ),
            migrations.AlterField(
                model_name='evaluation',
                name='state',
                field=models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('cancelled', 'Cancelled'), ('reported', 'Reported, not measured')], default='queued', max_length=10),
            ),
            migrations.AlterField(
                model_name='finding',
                name='superseded_by',
                field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='supersedes', to='optimizer.finding'),
            ),
            # As in 0021: Django's AlterField would read the table again.
            migrations.SeparateDatabaseAndState(
                database_operations=[
                    migrations.RunSQL("ALTER TABLE optimizer_job ALTER COLUMN evaluation_id DROP NOT NULL"),
                ],
                state_operations=[
                    migrations.AlterField(
                        model_name='job',
                        name='evaluation',
                        field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='job', to='optimizer.evaluation'),
                    ),
                ],
            ),
            migrations.AlterField(
                model_name='llmcall',
                name='state',
                field=models.CharField(choices=[('queued', 'Queued'), ('asking', 'Asking'), ('waiting', 'Waiting for an answer'), ('tools', 'Using tools'), ('answered', 'Answered'), ('failed', 'Failed'), ('uncertain', 'Uncertain'), ('cancelled', 'Cancelled')], default='queued', max_length=10),
            ),
            migrations.AlterField(
                model_name='notification',
                name='kind',
                field=models.CharField(choices=[('mention', 'Mentions of you'), ('reply', 'Replies in your threads'), ('review', 'Review requests for your team, and reviews of your kernels'), ('suggestion', 'Results of edits that you suggested'), ('best', 'New best kernels in runs you follow'), ('ended', 'Ends of runs you follow'), ('stuck', 'Runs you follow that need attention'), ('budget', 'Runs you follow that have used 80 % of a budget'), ('release', "Releases of your team's kernels"), ('campaign', 'Ends of your campaigns'), ('watch', 'Regressions of released kernels')], max_length=10),
            ),
            migrations.AlterField(
                model_name='notificationchoice',
                name='kind',
                field=models.CharField(choices=[('mention', 'Mentions of you'), ('reply', 'Replies in your threads'), ('review', 'Review requests for your team, and reviews of your kernels'), ('suggestion', 'Results of edits that you suggested'), ('best', 'New best kernels in runs you follow'), ('ended', 'Ends of runs you follow'), ('stuck', 'Runs you follow that need attention'), ('budget', 'Runs you follow that have used 80 % of a budget'), ('release', "Releases of your team's kernels"), ('campaign', 'Ends of your campaigns'), ('watch', 'Regressions of released kernels')], max_length=10),
            ),
            migrations.AddIndex(
                model_name='job',
                index=models.Index(fields=['worker', '-id'], name='job_of_worker'),
            ),
            migrations.AddIndex(
                model_name='job',
                index=models.Index(models.F('queue'), models.F('priority'), django.db.models.functions.comparison.Coalesce('place', 'id'), condition=models.Q(('state', 'queued')), name='job_in_turn'),
            ),
            migrations.AddIndex(
                model_name='problem',
                index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector('title', 'slug', config='english'), name='problem_words'),
            ),
            migrations.AddField(
                model_name='idempotencykey',
                name='campaign',
                field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='optimizer.campaign'),
            ),
            migrations.DeleteModel(
                name='SignIn',
            ),
        ]),
        migrations.RunPython(EARLIER_RUNS.say_none, migrations.RunPython.noop),
        migrations.RunPython(WAITING_JOBS.sign_waiting, migrations.RunPython.noop),
    ]
