# The app in a container, for Hugging Face Spaces (`sdk: docker`, `app_port: 8501`) and anywhere else:
#     docker build -t mars-viz . && docker run --rm -p 8501:8501 mars-viz
# It needs no system package: the wheels bring what they use.
FROM python:3.11-slim

# Spaces run a container as user 1000; this one is never root while it serves.
RUN useradd --create-home --uid 1000 reader
USER reader
WORKDIR /home/reader/app
ENV PATH=/home/reader/.local/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

# torch first and from its own index: the pinned version's build for CPUs, a tenth of the size of the one for GPUs.
COPY --chown=reader requirements.txt .
RUN pip install --user --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' requirements.txt)" \
    && pip install --user -r requirements.txt

COPY --chown=reader . .

# Spaces show the app inside a page of another site, where browsers hold back the cookie that uploads are checked by; they
# would be refused with 403. There is no account here that the check could protect.
ENV STREAMLIT_SERVER_ENABLE_XSRF_PROTECTION=false
EXPOSE 8501
HEALTHCHECK --start-period=60s \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://localhost:8501/_stcore/health', timeout=5)"]
CMD ["python", "-m", "streamlit", "run", "app.py", "--server.address=0.0.0.0", "--server.port=8501", "--server.headless=true"]
