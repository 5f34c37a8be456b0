"""Pipeline steps for Prefect, Dagster and Airflow. Users import the module of their orchestrator."""
